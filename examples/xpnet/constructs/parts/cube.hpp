#pragma once

inline long cube (long n)
{
  return n * n * n;
}
