"""Translation: `task` trains; `shortlist` learns candidates by `translation_table`."""
