import { describe, expect, it } from 'vitest';
import { merge } from '../src/widget/delta';
import { box, snap } from './snap';

describe('a delta', () => {
  it('changes fields of boxes and leaves the others the same objects', () => {
    const before = snap();
    const after = merge(before, { base: 1, serial: 2, top: { revision: 9, words: 'done' }, boxes: [[1, { status: 'failed' }]] });
    expect(after).toMatchObject({ serial: 2, revision: 9, words: 'done' });
    expect(after.graph.boxes[1]).toMatchObject({ id: 'b', status: 'failed' });
    expect(after.graph.boxes[0]).toBe(before.graph.boxes[0]);
    expect(after.graph.edges).toBe(before.graph.edges);
    expect(before.graph.boxes[1]!.status).toBe('completed');
  });

  it('puts boxes in and takes them out, and the lines follow their boxes', () => {
    const before = snap({ graph: { ...snap().graph, boxes: [box('a'), box('b'), box('c')], edges: [{ a: 0, b: 1, path: 'M' }, { a: 0, b: 2, path: 'N' }] } }); // prettier-ignore
    const after = merge(before, {
      base: 1, serial: 2, top: {}, graph: { width: 500 }, gone: ['b'], new: [{ at: 1, box: box('x') }, { at: 3, box: box('y') }],
      boxes: [[0, { y: 7 }]], edges: [[0, 1, 'X'], [2, 3, 'Y']] // prettier-ignore
    });
    expect(after.graph.boxes.map(b => b.id)).toEqual(['a', 'x', 'c', 'y']);
    expect(after.graph.boxes[0]!.y).toBe(7);
    expect(after.graph.width).toBe(500);
    expect(after.graph.edges).toEqual([{ a: 0, b: 2, path: 'N' }, { a: 0, b: 1, path: 'X' }, { a: 2, b: 3, path: 'Y' }]); // prettier-ignore
  });

  it('cuts a line that is gone', () => {
    expect(merge(snap(), { base: 1, serial: 2, top: {}, cut: [[0, 1]] }).graph.edges).toEqual([]);
  });
});
