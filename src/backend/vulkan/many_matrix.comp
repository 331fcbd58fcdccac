/* Products of many rows by cooperative matrices, for devices that have them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#define MATRICES
#include "many.glsl"
