#include "typed_calls.h"

#include <cstddef>
#include <utility>

namespace graphsink {

namespace {

template <std::size_t size>
struct Word {
    char letters[size]{};
    constexpr Word(const char (&text)[size]) {  // NOLINT: a literal is meant to become a Word
        for (std::size_t i = 0; i < size; ++i) letters[i] = text[i];
    }
};

template <char letter>
auto read(const CallSlot& slot) {
    static_assert(letter == 'P' || letter == 'L' || letter == 'I' || letter == 'D');
    if constexpr (letter == 'P') {
        return slot.pointer;
    } else if constexpr (letter == 'L') {
        return slot.integer;
    } else if constexpr (letter == 'I') {
        return slot.small;
    } else {
        return slot.real;
    }
}

template <Word word, std::size_t... index>
std::int32_t call(void* function, const CallSlot* slots, std::index_sequence<index...>) {
    using Function = std::int32_t (*)(decltype(read<word.letters[index]>(slots[index]))...);
    return reinterpret_cast<Function>(function)(read<word.letters[index]>(slots[index])...);
}

template <Word word>
std::int32_t call_word(void* function, const CallSlot* slots) {
    return call<word>(function, slots, std::make_index_sequence<sizeof word.letters - 1>{});
}

struct Entry {
    const char* signature;
    TypedCall call;
};

#define GS_TYPED_SIGNATURE(word) {word, call_word<word>},
constexpr Entry kEntries[] = {
#include "typed_signatures.inc"
};
#undef GS_TYPED_SIGNATURE

}  // namespace

TypedCall find_typed_call(const std::string& signature) {
    for (const Entry& entry : kEntries) {
        if (signature == entry.signature) return entry.call;
    }
    return nullptr;
}

std::vector<std::string> typed_call_signatures() {
    std::vector<std::string> words;
    for (const Entry& entry : kEntries) words.emplace_back(entry.signature);
    return words;
}

}  // namespace graphsink
