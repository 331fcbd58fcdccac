/* Products by dot4, for devices that have the instruction. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define DOT4
#include "product.glsl"
