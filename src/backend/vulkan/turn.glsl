/*
 * Rotation of two values of a head. The bits are those of the CPU, which rounds each product: a
 * position's key is the same whichever launch computed it.
 */
vec2 turned(vec2 x, float c, float s)
{
    precise float a = x.x * c - x.y * s, b = x.x * s + x.y * c;
    return vec2(a, b);
}
