"""Settings of the notebook kernels in .venv; `make env` copies this file to .venv/etc/ipython/."""

c = get_config()  # noqa: F821  (IPython defines it)

# A kernel here talks to programs on the same computer only. Without this line each of them prints a warning
# that the connection is not encrypted.
c.IPKernelApp.log_level = "ERROR"
