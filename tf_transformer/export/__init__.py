"""SavedModels: signatures, card, versions, tested before they are published."""
