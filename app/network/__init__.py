"""The network as the product knows it: its links, where they meet, and its calendar."""
