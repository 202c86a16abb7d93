"""Text to V_theta: the encoders of queries and passages."""

from sidr_rag.encoder.config import ModelConfig
from sidr_rag.encoder.encoder import Encoder
from sidr_rag.encoder.loading import load_encoder

__all__ = ["Encoder", "ModelConfig", "load_encoder"]
