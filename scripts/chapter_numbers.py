"""A Sphinx extension: a page and the sidebar write a chapter's number as its folder does, 02. Its figures and theorems stay 2.1, 2.2."""

from docutils import nodes


def two_digits(app, env) -> list[str]:
    """Sphinx has numbered pages, figures and theorems just before, and it does so anew in every build."""
    for numbers in env.toc_secnumbers.values():
        numbers.update({anchor: padded(number) for anchor, number in numbers.items() if number})
    for node in [*env.titles.values(), *(node for toc in env.tocs.values() for node in toc.findall(nodes.reference))]:
        if node.get("secnumber"):
            node["secnumber"] = padded(node["secnumber"])
    return []  # no page has to be read again for that


def padded(number: tuple) -> tuple:
    return (f"{int(number[0]):02}", *number[1:])


def setup(app) -> dict:
    app.connect("env-get-updated", two_digits, priority=900)  # Sphinx's own numbering has 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
