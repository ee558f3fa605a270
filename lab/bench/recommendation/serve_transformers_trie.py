"""transformers as a peer, as its users call it: generate() reads the prompt for every beam."""
from trie_generation import loader  # its folder of peers is on the path now
from answering import serve

serve(loader(prompt_once=False))
