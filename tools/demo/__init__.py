"""The parts of the demonstration model's training: corpus, network, optimiser, export, evaluation."""
