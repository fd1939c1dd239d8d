"""`python -m hlas.knowledge.embedding`: the embedding process, started by a worker."""

from hlas.knowledge.embedding.process import main

if __name__ == "__main__":
    main()
