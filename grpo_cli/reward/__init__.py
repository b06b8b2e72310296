"""From completions to rewards: the judge, groups, shaping, placebo."""
