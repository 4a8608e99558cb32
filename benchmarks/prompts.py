"""Ten prompts of different kinds: code, prose, verse, lists, a question in the chat format."""

PROMPTS = [
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "import math\n\nclass Vector:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n    def length(self):\n",
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n",
    "Q: What is 17 + 25?\nA:",
    "1, 1, 2, 3, 5, 8, 13,",
    "Ingredients:\n- 200 g flour\n- 2 eggs\n- 300 ml milk\n\nMethod:\n1.",
    "The three most important inventions of the nineteenth century were",
    "<|im_start|>user\nExplain why the sky is blue.<|im_end|>\n<|im_start|>assistant\n",
]
