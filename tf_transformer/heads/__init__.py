"""Which heads of attention a trained model needs: masking, importance, pruning."""
