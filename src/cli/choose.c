/* How tokens are chosen, where nothing is said. */
#include "cli/choose.h"

#include "cli/args.h"

choose_options choose_options_default(void)
{
    choose_options o = {.sampler = lace_sampler_options_default(), .n_draft = 8};
    o.sampler.seed = args_random_seed();
    return o;
}
