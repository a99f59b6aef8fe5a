import { describe, expect, it } from 'vitest';
import { ago, duration, ticking } from '../src/widget/format';

describe('durations', () => {
  it.each([
    [0, '< 0.01 s'],
    [0.08, '0.08 s'],
    [0.31, '0.31 s'],
    [1.4, '1.4 s'],
    [9.96, '10 s'],
    [72, '1 m 12 s'],
    [59.6, '1 m 00 s'],
    [7500, '2 h 05 m'],
    [273600, '3 d 4 h']
  ])('%f s reads %s', (seconds, words) => expect(duration(seconds)).toBe(words));

  it('ticks in whole seconds and never below zero', () => {
    expect(ticking(1.9)).toBe('1 s');
    expect(ticking(-5)).toBe('0 s');
  });

  it('says how long ago', () => {
    expect([10, 130, 7200, 90000, 260000].map(ago)).toEqual(['just now', '2 min ago', '2 h ago', '1 day ago', '3 days ago']);
  });
});
