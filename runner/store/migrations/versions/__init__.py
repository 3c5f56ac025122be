"""One module per version; each says which SQL files it executes and which version it follows."""
