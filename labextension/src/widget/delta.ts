/** What has changed, put into the snapshot that it builds on. Boxes that stayed the same stay the same objects. */
import type { BoxShot, DeltaShot, EdgeShot, Snapshot } from '../generated/views';

export function merge(snap: Snapshot, delta: DeltaShot): Snapshot {
  let { boxes, edges } = snap.graph;
  if (delta.gone || delta.new) {
    const gone = new Set(delta.gone);
    const next = boxes.filter(box => !gone.has(box.id));
    delta.new?.forEach(({ at, box }) => next.splice(at, 0, box)); // in the order of their places
    const index = new Map(next.map((box, i) => [box.id, i]));
    const old = boxes;
    edges = edges.flatMap(edge => {
      const [a, b] = [index.get(old[edge.a]!.id), index.get(old[edge.b]!.id)];
      return a === undefined || b === undefined ? [] : [{ ...edge, a, b }];
    });
    boxes = next;
  }
  if (delta.boxes) {
    boxes = [...boxes];
    for (const [i, fields] of delta.boxes) {
      boxes[i] = { ...boxes[i]!, ...(fields as Partial<BoxShot>) };
    }
  }
  if (delta.cut || delta.edges) {
    const lines = new Map<string, EdgeShot>(edges.map(edge => [`${edge.a} ${edge.b}`, edge]));
    delta.cut?.forEach(([a, b]) => lines.delete(`${a} ${b}`));
    delta.edges?.forEach(([a, b, path]) => lines.set(`${a} ${b}`, { a, b, path }));
    edges = [...lines.values()];
  }
  return { ...snap, ...(delta.top as Partial<Snapshot>), serial: delta.serial, graph: { ...snap.graph, ...delta.graph, boxes, edges } };
}
