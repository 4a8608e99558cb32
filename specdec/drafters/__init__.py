from specdec.drafters.base import Drafter, Outcome, Proposer
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.prompt_lookup import PromptLookup

__all__ = ["DraftModel", "Drafter", "Outcome", "PromptLookup", "Proposer"]
