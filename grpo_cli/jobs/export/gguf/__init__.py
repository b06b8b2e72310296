"""A policy as one `.gguf` file, as llama.cpp and Ollama load it, with a Modelfile."""
