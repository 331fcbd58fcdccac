/* Products of many rows by floats, for every device. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "many.glsl"
