"""Turns the CSV files of the digits into TFRecords:

python jobspecs/apps/digits_convert.py jobspecs/data/digits jobspecs/data/digits_tfrecord
"""

import argparse
import os
import sys

from digits import prepare
from pyspark.sql import SparkSession

from tfos_core import tfrecords


def main(source, target):
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("digits-convert").config("spark.ui.enabled", "false").getOrCreate()
    for name, files in (("train", 4), ("test", 1)):
        rows = spark.read.csv(f"{source}/{name}.csv", header=True)
        images = prepare(spark, rows, argparse.Namespace(partitions=files))
        count = tfrecords.save_as_tfrecords(images, f"{target}/{name}", mode="overwrite", options={"compression": "gzip"})
        print(f"{count} images in {target}/{name}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
