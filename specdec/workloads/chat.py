"""Questions as people ask them."""

QUESTIONS = [
    "What is the difference between a virus and a bacterium, and why do antibiotics help against only one of them?",
    "I have two free days in a city by the sea and it is going to rain. What could I do with two children of six and nine?",
    "Explain to a beginner how compound interest works, with an example.",
    "Write a polite e-mail to my landlord. The heating in the bedroom has been broken for a week and I have a small baby.",
    "Why did the Roman Empire in the west come to an end? Name the causes that historians discuss most.",
    "My houseplant has yellow leaves and the soil is always wet. What is wrong, and how can I save it?",
]
