"""transformers as a peer with a cache made beforehand, so that the prompt is read once."""
from trie_generation import loader  # its folder of peers is on the path now
from answering import serve

serve(loader(prompt_once=True))
