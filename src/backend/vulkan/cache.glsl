/* Where the keys and values of a position lie. Rows may begin at any even byte of a page. */

words_at cache_page(cache_args c, uint sequence, uint position)
{
    uint page = c.tables.v[sequence * c.pages_per_sequence + position / c.page_tokens];
    return words_at(address_plus(uvec2(c.data), page, c.page_bytes));
}

/* The bytes of a page in front of a head's row. */
uint key_offset(cache_args c, uint head, uint position)
{
    return c.k_offset + (head * c.page_tokens + position % c.page_tokens) * c.row_bytes;
}

uint value_offset(cache_args c, uint head, uint position)
{
    return c.v_offset + (head * c.page_tokens + position % c.page_tokens) * c.v_row_bytes;
}
