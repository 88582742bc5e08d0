"""Marian checkpoints to runs and back, and runs to CTranslate2."""
