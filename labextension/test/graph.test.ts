import { expect, it } from 'vitest';
import { noteNow, step } from '../src/widget/graph';
import { box } from './snap';

const graph = {
  boxes: [box('a'), box('b', { x: 164, y: 0 }), box('c', { x: 164, y: 56 }), box('d', { x: 328, y: 56 })],
  edges: [{ a: 0, b: 1 }, { a: 0, b: 2 }, { a: 1, b: 3 }, { a: 2, b: 3 }] // prettier-ignore
};

it('arrow keys follow lines and columns, and stay at the ends', () => {
  expect(step('ArrowRight', 0, graph)).toBe(1);
  expect(step('ArrowLeft', 3, graph)).toBe(2);
  expect(step('ArrowDown', 1, graph)).toBe(2);
  expect(step('ArrowUp', 2, graph)).toBe(1);
  expect(step('ArrowRight', 3, graph)).toBeNull();
  expect(step('a', 0, graph)).toBeNull();
});

it('a second line counts up, counts down, or stands still', () => {
  expect(noteNow(box('a', { note: 'running', since: 10 }), 22)).toBe('12 s');
  expect(noteNow(box('a', { note: 'running · try 2', since: 10 }), 22)).toBe('running · try 2 · 12 s');
  expect(noteNow(box('a', { note: 'waiting', since: 10 }), 58)).toBe('waiting 48 s');
  expect(noteNow(box('a', { note: 'trying again', until: 14 }), 10)).toBe('trying again, 4 s');
  expect(noteNow(box('a', { note: '0.31 s' }), 10)).toBe('0.31 s');
});
