// The paged pool of keys and values, as the attention kernels see it. Include after level.h.
//
// keys [blocks, block_size, kv_heads, key_size], values [blocks, block_size, kv_heads, value_size]; a *slot*
// is block * block_size + position within the block: the place of one token.
#pragma once

#include "vector_math_slots.h"

namespace graphsink {
namespace {

template <typename T>
struct Pool {
    const T* keys;
    const T* values;
    const int32_t* block_table;  // [sequences, table_columns]
    int64_t kv_heads;
    int64_t key_size;
    int64_t value_size;
    int64_t blocks;
    int64_t block_size;
    int64_t table_columns;

    const T* key(int64_t slot, int64_t kv_head) const {
        return keys + (slot * kv_heads + kv_head) * key_size;
    }
    const T* value(int64_t slot, int64_t kv_head) const {
        return values + (slot * kv_heads + kv_head) * value_size;
    }
    bool sizes_make_sense() const {
        return kv_heads > 0 && key_size > 0 && value_size > 0 && blocks >= 0 && block_size > 0 &&
               table_columns >= 0;
    }
};

// Slots of `count` positions of a sequence from `first` on; false if one of their blocks is not in the pool.
// The positions must be covered by the table.
template <typename T>
bool find_slots(const Pool<T>& pool, int64_t sequence, int64_t first, int64_t count, int64_t* slots) {
    const int32_t* row = pool.block_table + sequence * pool.table_columns;
    int64_t column = first / pool.block_size, within = first % pool.block_size;
    for (int64_t done = 0; done < count; ++column, within = 0) {
        const int64_t block = row[column];
        if (block < 0 || block >= pool.blocks) return false;
        const int64_t here = smaller(pool.block_size - within, count - done);
        for (int64_t i = 0; i < here; ++i) slots[done + i] = block * pool.block_size + within + i;
        done += here;
    }
    return true;
}

}  // namespace
}  // namespace graphsink
