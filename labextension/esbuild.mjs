// Bundles the widget into the Python package. Every view in a notebook carries these bytes, hence the limit.
import { readFile } from 'node:fs/promises';
import { build } from 'esbuild';
import { packed } from './pack.mjs';

const LIMIT = 40_000;
const outfile = '../loom_kernel/notebook/static/run_widget.js';
const dev = process.argv.includes('--dev');

await build({
  entryPoints: ['src/widget/index.ts'],
  outfile,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  minify: !dev,
  sourcemap: dev && 'inline',
  legalComments: 'none',
  plugins: [
    {
      // The style sheet travels inside the module as a string, minified and packed.
      name: 'css-text',
      setup(build) {
        build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
          const { code } = await build.esbuild.transform(await readFile(path, 'utf8'), { loader: 'css', minify: !dev });
          if (/url\(|@import/.test(code)) {
            throw new Error('the style sheet fetches something');
          }
          return dev ? { contents: code.trim(), loader: 'text' } : { contents: packed(code.trim()), loader: 'js' };
        });
      }
    }
  ],
  logLevel: 'info'
});

const bytes = await readFile(outfile);
if (!dev && bytes.length > LIMIT) {
  throw new Error(`the widget is ${bytes.length} bytes, the limit is ${LIMIT}`);
}
if (/\bimport\s*[("'][^;]*https?:/.test(bytes.toString())) {
  throw new Error('the widget imports from the network');
}
