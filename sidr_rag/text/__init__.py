"""Text to dimensions of the vocabulary space, and long texts to passages."""

from sidr_rag.text.normalize import normalize
from sidr_rag.text.splitter import split_spans
from sidr_rag.text.tokenizer import BagTokenizer
from sidr_rag.text.vocabulary import Vocabulary

__all__ = ["BagTokenizer", "Vocabulary", "normalize", "split_spans"]
