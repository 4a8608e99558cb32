"""How a submission is judged: it becomes a job, whose cells run in a sandbox, and the checks ask them from outside."""
