/*
 * The sum of four products of signed bytes, by an instruction (OpSDot). The compilers of stable
 * distributions do not know its extension, so it is asked for by its number.
 */
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(int a, int b, spirv_literal int format);

int dot4(uint a, uint b)
{
    return packed_dot(int(a), int(b), 0);
}
