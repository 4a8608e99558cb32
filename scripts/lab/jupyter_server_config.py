"""JupyterLab as `make lab` opens it for a learner. The settings beside this file, in labconfig/, are of the same make."""

from pathlib import Path

c = get_config()  # noqa: F821  (Jupyter defines it)

# What nbgrader serves to teachers' panes; labconfig/page_config.json hides the panes themselves.
panes = ("assignment_list", "course_list", "formgrader", "validate_assignment")
c.ServerApp.jpserver_extensions = {f"nbgrader.server_extensions.{name}": False for name in panes}

c.LabApp.custom_css = True
c.ServerApp.tornado_settings = {"static_custom_path": [str(Path(__file__).resolve().parent / "custom")]}
