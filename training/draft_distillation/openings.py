"""How the questions that a target invents begin. By itself a small chat model asks about few subjects, so most questions start with
words from here, which the target goes on from. The choice depends on the seed and the number of the conversation alone."""
import random
from dataclasses import dataclass

TEXT = "{text}"  # stands for a text of --texts, or one that the target has written before: an answer to a question of its own


@dataclass(frozen=True)
class Opening:
    words: str            # the message starts so; may be empty
    goes_on: bool = True  # whether the target writes more of it

    @property
    def has_text(self):
        return TEXT in self.words

    def filled(self, text):
        return self.words.replace(TEXT, text)


FREE = [Opening("")]

# (share, openings of which one is taken)
KINDS = [
    (30, FREE),
    (18, [Opening(words) for words in (  # short questions about facts
        "Who", "Who wrote", "Who played", "Who was the first", "Who sings", "What is the name of", "What is the capital of", "What was",
        "What does", "What year did", "What kind of", "When did", "When was", "When is", "Where is", "Where was", "Where did", "Which",
        "Which country", "How many", "How long", "How old", "How far", "How much", "Why is", "Why do", "Why did", "In which city",
        "What are the", "Is it true that", "what is", "where does", "who is", "when does", "how did")]),
    (12, [Opening(words) for words in (  # sums
        "Tom has", "Maria buys", "A farmer has", "A train travels", "A baker makes", "There are 24", "In a class of 30 students", "Ben earns",
        "Each box holds", "Sara reads", "A shop sells", "If 3 workers", "John is twice as old as", "Emma and Liam", "It takes",
        "A rectangle has", "Solve", "Find the value of", "Calculate", "What is the probability that", "If x", "Two numbers",
        "The price of", "Every day, Anna", "A tank contains", "Lisa saves $")]),
    (12, [Opening(words) for words in (  # tasks
        "Write a", "Write a short story about", "Write an email", "Compose", "Draft", "Describe", "Explain", "Explain why", "Compare",
        "Imagine you are", "Pretend to be", "Act as", "Give me", "List", "Suggest", "Help me", "Create a", "Develop", "Design", "Discuss",
        "Tell me", "Outline", "Provide", "Can you", "Could you", "I want to", "I need", "Identify", "Analyze", "Edit the following",
        "Given the following", "Extract", "Classify", "Evaluate", "Please", "Suppose", "Consider", "As a", "You are", "My")]),
    (6, [Opening(words) for words in (  # programs
        "Write a Python function", "Write a program that", "Implement", "Write a C++ program", "Write an SQL query", "Fix this code:",
        "What does this code do?", "Write a regular expression", "Write a JavaScript function", "Write a function to find")]),
    (8, [Opening(words) for words in (  # other languages
        "Translate German to English: Die", "Translate German to English: Der", "Translate German to English: Das",
        "Translate German to English: Wir", "Translate German to English: Ein", "Translate German to English: Es",
        "Translate German to English: In", "Translate German to English: \"", "Translate German to English: Nach",
        "Translate German to English: Im", "Translate to English:", "Translate French to English: Le",
        "Translate Spanish to English: El", "Translate the following sentence:")]),
    (8, [Opening(f"Summarize: {TEXT}", goes_on=False), Opening(f"Summarize the following text:\n\n{TEXT}", goes_on=False),
         Opening(f"{TEXT}\n\nSummarize this in one sentence.", goes_on=False), Opening(f"What is the main point?\n{TEXT}", goes_on=False)]),
    (6, [Opening(f"{TEXT}\n\nQuestion:"), Opening(f"Answer the question with this text.\n{TEXT}\nQuestion: What"),
         Opening(f"{TEXT}\n\nWho"), Opening(f"{TEXT}\n\nWhy"), Opening(f"{TEXT}\n\nHow"),
         Opening(f"Answer the question with this text.\n{TEXT}\nQuestion: Who")]),
]


def of(seed, number, about_texts=False):
    """The opening of a conversation; about_texts: one with a text."""
    source = random.Random(f"{seed} {number}")
    kinds = [(share, openings) for share, openings in KINDS if not about_texts or openings[0].has_text]
    kind = source.choices([openings for _, openings in kinds], [share for share, _ in kinds])[0]
    return source.choice(kind)
