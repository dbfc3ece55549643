def decode_workspace_floats(sequences,heads,value_size,block_size,table_columns):
    return sequences * -(-table_columns*block_size//256) * heads * (-(-value_size//16)*16+16)
