"""Token ids and cache pages: sequences, queues, pages, sampler, step. Never text, HTTP or actors."""
