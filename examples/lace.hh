// lace for C++17: objects that free themselves, errors as exceptions, text as a range of pieces.
//
//     lace::model model("model.gguf");
//     for (const std::string &piece : model.generate("Once upon a time"))
//         std::cout << piece;
//
// Copy it into a program and add what that needs; all of lace.h is there through the handles.
#pragma once
#include <lace.h>

#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lace
{

struct error : std::runtime_error {
    lace_status status;
    explicit error(const lace_error &e) : std::runtime_error(e.text), status(e.status)
    {
    }
};

// Calls a function of lace.h whose last argument is the error, which becomes an exception.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments)
{
    lace_error err{};
    if (function(arguments..., &err) != LACE_OK)
        throw error(err);
}

template <auto Free> struct freer {
    template <typename T> void operator()(T *handle) const
    {
        Free(handle);
    }
};
template <typename T, auto Free> using handle = std::unique_ptr<T, freer<Free>>;

struct settings {
    int max_tokens = -1;
    lace_sampler_options sampler = lace_sampler_options_default();
};

// A text while it is written: a range, which can be walked over once. Leaving it early ends it.
class generation
{
  public:
    generation(lace_model *model, const std::vector<lace_token> &prompt, const settings &s)
    {
        lace_batcher_options options = lace_batcher_options_default();
        options.session.n_sequences = 1;
        lace_batcher *made = nullptr;
        call(lace_batcher_create, model, &options, &made);
        batcher_.reset(made);
        lace_generation_options g = lace_generation_options_default();
        g.prompt = prompt.data();
        g.n_prompt = prompt.size();
        g.max_tokens = s.max_tokens;
        g.sampler = s.sampler;
        g.user = state_.get();
        g.on_piece = [](void *user, const lace_piece *piece) {
            auto *state = static_cast<progress *>(user);
            if (piece->n_bytes)
                state->pieces.emplace_back(piece->text, piece->n_bytes);
            if (piece->error)
                state->failure = *piece->error;
        };
        lace_generation *added = nullptr;
        call(lace_batcher_add, batcher_.get(), &g, &added);
    }

    struct end_mark {
    };
    class iterator
    {
      public:
        explicit iterator(generation *of) : of_(of)
        {
            of_->fill();
        }
        const std::string &operator*() const
        {
            return of_->state_->pieces.front();
        }
        iterator &operator++()
        {
            of_->state_->pieces.pop_front();
            of_->fill();
            return *this;
        }
        bool operator!=(end_mark) const
        {
            return !of_->state_->pieces.empty();
        }

      private:
        generation *of_;
    };
    iterator begin()
    {
        return iterator(this);
    }
    end_mark end() const
    {
        return {};
    }

  private:
    struct progress {
        std::deque<std::string> pieces;
        lace_error failure{};
    };

    void fill()
    {
        while (state_->pieces.empty() && lace_batcher_step(batcher_.get()))
            ;
        if (state_->pieces.empty() && state_->failure.status != LACE_OK)
            throw error(state_->failure);
    }

    std::unique_ptr<progress> state_ = std::make_unique<progress>();
    handle<lace_batcher, lace_batcher_free> batcher_;
};

class model
{
  public:
    explicit model(const std::string &path,
                   lace_model_options options = lace_model_options_default())
    {
        lace_model *made = nullptr;
        call(lace_model_open, path.c_str(), &options, &made);
        handle_.reset(made);
    }

    lace_model *get() const
    {
        return handle_.get();
    }

    lace_model_info describe() const
    {
        lace_model_info info;
        lace_model_describe(get(), &info);
        return info;
    }

    std::vector<lace_token> tokenize(std::string_view text) const
    {
        std::vector<lace_token> tokens(text.size() + 2);
        size_t n = 0;
        call(lace_tokenize, get(), text.data(), text.size(), unsigned(LACE_TOKENIZE_ADD_SPECIAL),
             tokens.data(), tokens.size(), &n);
        tokens.resize(n);
        return tokens;
    }

    generation generate(std::string_view prompt, const settings &s = {}) const
    {
        return generation(get(), tokenize(prompt), s);
    }

  private:
    handle<lace_model, lace_model_close> handle_;
};

} // namespace lace
