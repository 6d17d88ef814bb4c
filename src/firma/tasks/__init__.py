"""What is learnt: classification, multi-label or regression; its targets, its loss, its metrics, its warnings."""
