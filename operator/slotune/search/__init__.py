"""Space, bounds, best-first search, decision and cost. Pure: it asks for a trial and is told what came of it."""
