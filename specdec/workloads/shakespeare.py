"""Beginnings of scenes by William Shakespeare, in the public domain."""

SCENES = [
    """ROMEO.
He jests at scars that never felt a wound.
But soft! what light through yonder window breaks?
It is the east, and Juliet is the sun!
Arise, fair sun, and kill the envious moon,
Who is already sick and pale with grief
That thou her maid art far more fair than she.
""",
    """BRUTUS.
Be patient till the last.
Romans, countrymen, and lovers, hear me for my cause, and be silent, that you may hear. Believe me for mine honour, and have
respect to mine honour, that you may believe. Censure me in your wisdom, and awake your senses, that you may the better judge.
""",
    """Enter the three Witches.

FIRST WITCH.
Thrice the brinded cat hath mew'd.

SECOND WITCH.
Thrice, and once the hedge-pig whin'd.

THIRD WITCH.
Harpier cries:—'Tis time, 'tis time.

FIRST WITCH.
""",
    """PORTIA.
The quality of mercy is not strain'd,
It droppeth as the gentle rain from heaven
Upon the place beneath. It is twice blest,
It blesseth him that gives and him that takes.
'Tis mightiest in the mightiest; it becomes
The throned monarch better than his crown.
""",
    """GLOUCESTER.
Now is the winter of our discontent
Made glorious summer by this sun of York;
And all the clouds that lour'd upon our house
In the deep bosom of the ocean buried.
Now are our brows bound with victorious wreaths,
Our bruised arms hung up for monuments,
""",
    """HORATIO.
Hail to your lordship!

HAMLET.
I am glad to see you well.
Horatio, or I do forget myself.

HORATIO.
The same, my lord, and your poor servant ever.

HAMLET.
Sir, my good friend;
I'll change that name with you:
And what make you from Wittenberg, Horatio?—
""",
]
