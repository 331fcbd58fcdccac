// The same as complete.c through lace.hh: story MODEL.gguf "Once upon a time"
#include "lace.hh"

#include <iostream>

int main(int argc, char **argv)
try {
    lace::model model(argc > 1 ? argv[1] : "model.gguf");
    lace::settings settings;
    settings.max_tokens = 100;
    settings.sampler.seed = 1;
    for (const std::string &piece :
         model.generate(argc > 2 ? argv[2] : "Once upon a time", settings))
        std::cout << piece << std::flush;
    std::cout << '\n';
} catch (const lace::error &e) {
    std::cerr << "story: " << e.what() << '\n';
    return 1;
}
