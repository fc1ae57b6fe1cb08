"""The verdict: criterion, ladder, and the finder that joins them with the search."""
