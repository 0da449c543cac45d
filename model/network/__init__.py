"""The network model: context from the whole network, a linear base, and KR_SML on what it leaves."""
