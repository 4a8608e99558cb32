from specdec.drafters.base import Drafter, Outcome, Proposer
from specdec.drafters.combine import Combine
from specdec.drafters.distilled import DistilledConfig, DistilledDraft
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.eagle import Eagle
from specdec.drafters.eagle_head import EagleConfig, EagleHead
from specdec.drafters.lookahead import Lookahead
from specdec.drafters.medusa import Medusa, MedusaConfig, MedusaHeads
from specdec.drafters.prompt_lookup import PromptLookup

__all__ = [
    "Combine", "DistilledConfig", "DistilledDraft", "DraftModel", "Drafter", "Eagle", "EagleConfig", "EagleHead", "Lookahead", "Medusa",
    "MedusaConfig", "MedusaHeads", "Outcome", "PromptLookup", "Proposer",
]  # fmt: skip
