"""Reports: render what was measured and recorded; nothing is computed anew here."""
