/** What anywidget loads. */
import type { Model } from './model';
import { RunView } from './view';

export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    const view = new RunView(model, el);
    return () => view.dispose();
  }
};
